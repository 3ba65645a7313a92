"""The style sheet of the report: light and dark by the reader's system, narrow and wide, on paper."""

__all__ = ["STYLE"]

STYLE = """
:root{color-scheme:light dark;--page:#fbfbf9;--card:#fff;--ink:#1d1f21;--soft:#5b6168;--rule:#dcdcd6;--accent:#0b62a3;
--good:#0b72b2;--idle:#c9ced3;--hard:#d9a17a;--easy:#a9cfa4;--warn:#9a4a00;--one:#0b72b2;--two:#c8500a;--three:#00845f;
--four:#a03f8f;--five:#6b7178;--code:#f3f3ee}
@media (prefers-color-scheme:dark){:root{--page:#15171a;--card:#1d2024;--ink:#e8e8e4;--soft:#a2a9b1;--rule:#363b41;
--accent:#7cc0f5;--good:#4aa8e8;--idle:#4a5057;--hard:#a86a3f;--easy:#5b8f58;--warn:#f0a860;--one:#5ab4f0;--two:#f58a4a;
--three:#3cc79a;--four:#d98aca;--five:#98a0a8;--code:#24282d}}
*{box-sizing:border-box}
body{margin:0;background:var(--page);color:var(--ink);font:16px/1.5 system-ui,-apple-system,"Segoe UI",Roboto,sans-serif;
overflow-wrap:anywhere}
main{max-width:62rem;margin:0 auto;padding:1.2rem 1rem 3rem}
h1{font-size:1.15rem;font-weight:600;color:var(--soft);margin:.2rem 0 .8rem}
h2{font-size:1.2rem;margin:2.2rem 0 .5rem;line-height:1.25}
h3{font-size:1rem;margin:1.3rem 0 .3rem}
p{margin:.45rem 0;max-width:46rem}
small,.soft{color:var(--soft)}
code,pre{font:13px/1.45 ui-monospace,SFMono-Regular,Menlo,Consolas,monospace}
code{background:var(--code);padding:.05em .3em;border-radius:3px}
pre{background:var(--code);padding:.7rem .8rem;border-radius:6px;overflow:auto;margin:.4rem 0;max-height:22rem}
.verdict{background:var(--card);border:1px solid var(--rule);border-left:6px solid var(--accent);border-radius:8px;
padding:1rem 1.2rem 1.1rem}
.verdict.yes{border-left-color:var(--three)}.verdict.unclear{border-left-color:var(--two)}
.verdict h2{margin:.1rem 0 .5rem;font-size:1.4rem}
.tiles{display:grid;grid-template-columns:repeat(auto-fit,minmax(12.5rem,1fr));gap:.8rem;margin:1rem 0}
.tile{background:var(--card);border:1px solid var(--rule);border-radius:8px;padding:.6rem .8rem}
.tile b{display:block;font-size:1.5rem;font-weight:650;line-height:1.25}
.tile span{color:var(--soft);font-size:.9rem}
.figures{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(100%,24rem),1fr));gap:1.2rem}
figure{margin:.4rem 0;background:var(--card);border:1px solid var(--rule);border-radius:8px;padding:.8rem;max-width:36rem}
figcaption{font-size:.95rem;margin-bottom:.3rem}
figure svg{display:block;width:100%;height:auto}
svg text{font:12px system-ui,sans-serif;fill:var(--soft)}
svg text.name{fill:var(--ink)}svg text.strong{fill:var(--ink);font-weight:650}
svg .grid{stroke:var(--rule)}svg .mark{stroke:var(--ink);stroke-dasharray:4 3}
svg .error{stroke:var(--ink);stroke-width:1.6}svg .span{stroke:var(--idle);stroke-width:5;stroke-linecap:round}
svg .dot{fill:var(--accent)}svg .small .mark{stroke-dasharray:none}
svg .good{fill:var(--good)}svg .idle{fill:var(--idle)}svg .hard{fill:var(--hard)}svg .easy{fill:var(--easy)}
svg .line{fill:none;stroke-width:2.2}svg .band{opacity:.16;stroke:none}
svg .line.one{stroke:var(--one)}svg .line.two{stroke:var(--two)}svg .line.three{stroke:var(--three)}
svg .line.four{stroke:var(--four)}svg .line.five{stroke:var(--five)}
svg .band.one{fill:var(--one)}svg .band.two{fill:var(--two)}svg .band.three{fill:var(--three)}
svg .band.four{fill:var(--four)}svg .band.five{fill:var(--five)}
.legend{list-style:none;margin:.4rem 0 0;padding:0;font-size:.88rem;display:flex;flex-wrap:wrap;gap:.15rem 1rem}
.key{display:inline-block;width:.9rem;height:.7rem;margin-right:.35rem;border-radius:2px;vertical-align:baseline}
.key.stroke{height:.22rem;vertical-align:middle}
.key.good{background:var(--good)}.key.idle{background:var(--idle)}.key.hard{background:var(--hard)}
.key.easy{background:var(--easy)}.key.one{background:var(--one)}.key.two{background:var(--two)}
.key.three{background:var(--three)}.key.four{background:var(--four)}.key.five{background:var(--five)}
table{border-collapse:collapse;width:100%;font-size:.93rem;margin:.6rem 0;background:var(--card)}
th,td{padding:.4rem .55rem;border-bottom:1px solid var(--rule);text-align:right;vertical-align:top}
th{font-weight:600;color:var(--soft);font-size:.86rem;vertical-align:bottom}
th:first-child,td:first-child{text-align:left}
td.words,th.words{text-align:left}
tr.now td{background:var(--code)}
td small{display:block;color:var(--soft)}th{overflow-wrap:normal}td:not(:first-child){white-space:nowrap}.facts td:not(:first-child){white-space:normal}
svg.small{width:8.25rem;height:1rem;display:inline-block}
.facts td:first-child{color:var(--soft);width:13rem}.facts td{text-align:left}
ul.notes{padding-left:1.1rem;max-width:46rem}ul.notes li{margin:.2rem 0}
.tag{display:inline-block;font-size:.78rem;border:1px solid var(--rule);border-radius:99px;padding:.02rem .5rem;color:var(--soft)}
details{margin:.4rem 0}summary{cursor:pointer;color:var(--accent)}
@media (max-width:44rem){
body{font-size:15.5px}.verdict h2{font-size:1.2rem}
table.wide thead{display:none}table.wide,table.wide tbody,table.wide tr,table.wide td{display:block;width:auto}
table.wide tr{border-bottom:2px solid var(--rule);padding:.35rem 0}
table.wide td{border:0;text-align:left;padding:.1rem .55rem}
table.wide td:first-child{font-weight:600}
table.wide td[data-name]::before{content:attr(data-name) ": ";color:var(--soft)}
table.wide td small{display:inline;font-weight:400}table.wide td:not(:first-child){white-space:normal}
.facts td:first-child{width:8rem}}
@media print{:root{color-scheme:light;--page:#fff;--card:#fff;--ink:#000;--soft:#444;--rule:#bbb;--accent:#0b62a3;--good:#0b72b2;
--idle:#c9ced3;--hard:#d9a17a;--easy:#a9cfa4;--one:#0b72b2;--two:#c8500a;--three:#00845f;--four:#a03f8f;--five:#6b7178;--code:#f3f3ee}
body{font-size:10.5pt}main{max-width:none;padding:0}figure,.tile,.verdict,tr,.paste{break-inside:avoid}h2,h3{break-after:avoid}
.figures{grid-template-columns:1fr 1fr}pre{max-height:none;white-space:pre-wrap}details:not([open])>pre{display:none}}
"""
"""CSS of the page; it refers to nothing outside of it."""

"""How people's pass-rate files look: tables of two prompts, a and b, by kind, as a file's name and its text."""

from __future__ import annotations

import json

TEXTS: dict[str, tuple[str, str]] = {
    "csv": ("x.csv", "prompt_id,correct,total\na,5,16\nb,0,16\n"),
    "other names": ("x.csv", "idx,n_correct,n_total\na,5,16\nb,0,16\n"),
    "capitals and spaces": ("x.csv", "Prompt_ID , Correct , Total\na, 5, 16\nb, 0, 16\n"),
    "tsv": ("x.tsv", "problem_id\tnum_correct\tnum_samples\na\t5\t16\nb\t0\t16\n"),
    "tab in a .csv": ("x.csv", "problem_id\tnum_correct\tnum_samples\na\t5\t16\nb\t0\t16\n"),
    "semicolon": ("x.csv", "task_id;correct;total\na;5;16\nb;0;16\n"),
    "semicolon with decimal commas": ("x.csv", "task_id;pass_rate;n\na;0,3125;16\nb;0,0;16\n"),
    "comments": ("x.csv", "# written by hand\n#\nprompt_id,correct,total\na,5,16\n# b was hard\nb,0,16\n"),
    "quotes": ("x.csv", 'question,correct,total\n"a",5,16\n"b",0,16\n'),
    "rate and total": ("x.csv", "id,pass_rate,total\na,0.3125,16\nb,0.0,16\n"),
    "percent and total": ("x.csv", "id,solve_rate,total\na,31.25%,16\nb,0%,16\n"),
    "fractions": ("x.csv", "id,accuracy\na,5/16\nb,0/16\n"),
    "list in a cell": (
        "x.csv",
        'id,rewards\na,"[1,1,1,1,1,0,0,0,0,0,0,0,0,0,0,0]"\nb,"[0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0]"\n',
    ),
    "jsonl counts": (
        "x.jsonl",
        '{"idx": "a", "n_correct": 5, "n_total": 16}\n{"idx": "b", "n_correct": 0, "n_total": 16}\n',
    ),
    "jsonl rate in text": (
        "x.jsonl",
        '{"id": "a", "pass_rate": "31.25%", "n": 16}\n{"id": "b", "pass_rate": "0%", "n": 16}\n',
    ),
    "json array": ("x.json", '[{"task": "a", "correct": 5, "total": 16},\n {"task": "b", "correct": 0, "total": 16}]'),
    "json under a key": (
        "x.json",
        '{"results": {"samples": [{"id": "a", "correct": 5, "total": 16}, {"id": "b", "correct": 0, "total": 16}]}}',
    ),
    "json by prompt": ("x.json", '{"a": {"correct": 5, "total": 16}, "b": {"correct": 0, "total": 16}}'),
    "json by prompt under a key": (
        "x.json",
        '{"cfg": 1, "tasks": {"a": {"correct": 5, "total": 16}, "b": {"correct": 0, "total": 16}}}',
    ),
    "json fractions by prompt": ("x.json", '{"a": "5/16", "b": "0/16"}'),
    "json of columns": ("x.json", '{"prompt_id": ["a", "b"], "correct": [5, 0], "total": [16, 16]}'),
    "json of pandas": ("x.json", '{"correct": {"a": 5, "b": 0}, "total": {"a": 16, "b": 16}}'),
}
"""Counts or rates: 5 of 16 and 0 of 16."""

RESPONSES: dict[str, tuple[str, str]] = {
    "jsonl": (
        "x.jsonl",
        "".join(
            f'{{"task_id": "{p}", "passed": {str(r).lower()}}}\n'
            for p, r in zip("abab", (True, False, False, False), strict=True)
        ),
    ),
    "csv": ("x.csv", "problem_id,is_correct\na,True\nb,False\na,False\nb,False\n"),
    "reward": (
        "x.jsonl",
        "".join(
            f'{{"_ng_task_index": "{p}", "reward": {r}}}\n'
            for p, r in zip("abab", (1.0, -1.0, -1.0, -1.0), strict=True)
        ),
    ),
    "id of each row beside": ("x.csv", "id,task_id,score\n1,a,1\n2,b,0\n3,a,0\n4,b,0\n"),
    "json list": (
        "x.json",
        json.dumps([{"question": p, "score": r} for p, r in zip("abab", (1, 0, 0, 0), strict=True)]),
    ),
}
"""A row per response, not adjacent: 1 of 2 and 0 of 2."""

LISTS: dict[str, str] = {
    "booleans": '{"name": "a", "correctness": [true, false]}\n{"name": "b", "correctness": [false, false]}\n',
    "score": '{"id": 1, "question": "a", "score": [1, 0]}\n{"id": 2, "question": "b", "score": [0.0, 0]}\n',
    "nested": '{"id": "a", "completions": [{"t": "", "score": 1}, {"score": 0}]}\n'
    '{"id": "b", "completions": [{"score": 0}, {"score": 0}]}\n',
    "correct as list": '{"id": "a", "correct": [1, 0]}\n{"id": "b", "correct": [0, 0]}\n',
}
"""A list per prompt, JSON Lines: 1 of 2 and 0 of 2."""

"""How a file of rollouts is to be read, where the reader shall not guess."""

from __future__ import annotations

from dataclasses import dataclass

from ada_bandit.errors import InputError, check_count, check_number

__all__ = ["ReadOptions", "option_of"]


def option_of(role: str) -> str:
    """Return the option of the command line by the name of what it says; it is the same with every command."""
    return "--total-column" if role == "total" else f"--{role.replace('_', '-')}"


@dataclass(frozen=True)
class ReadOptions:
    """What names the columns and chooses the rows; None leaves it to the reader, which tells what it took.

    Columns are named as they stand, or by a dotted path: ``rewards.accuracy`` looks into an object,
    ``completions[].score`` takes one value of every member of a list.
    """

    prompt: str | None = None
    """Column of the prompt's id, or of its text."""
    reward: str | None = None
    """Column of rewards; several joined by ``+`` are added up."""
    correct: str | None = None
    """Column of correctness, of the number of correct responses, or of their share."""
    total: str | None = None
    """Column of the number of responses, or the number itself where it is the same for all prompts."""
    step: str | None = None
    """Column of the training step."""
    tokens: str | None = None
    """Column of the length of a response in tokens."""
    threshold: float | None = None
    """A reward above it is correct."""
    where: tuple[str, ...] = ()
    """Conditions ``column=value`` that a row must meet, all of them."""
    group_size: int | None = None
    """Responses a prompt, for a file whose rows stand in groups without a name."""
    add_repeated: bool = False
    """Whether counts that stand on several rows of one prompt are added up."""

    def __post_init__(self) -> None:
        if self.threshold is not None:
            object.__setattr__(self, "threshold", check_number("threshold", self.threshold))
        if self.group_size is not None:
            object.__setattr__(self, "group_size", check_count("group_size", self.group_size))
        object.__setattr__(self, "where", tuple(self.where))
        for condition in self.where:
            column, equals, _ = condition.partition("=")
            if not (equals and column.strip()):
                msg = f"a condition is written --where column=value; got {condition!r}"
                raise InputError(msg)

    @property
    def conditions(self) -> tuple[tuple[str, str], ...]:
        """The conditions as pairs of column and value."""
        parts = (condition.partition("=") for condition in self.where)
        return tuple((column.strip(), value.strip()) for column, _, value in parts)

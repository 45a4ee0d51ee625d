"""What does not keep to a rule yet: known.txt has a line "RULE WHAT" for each."""
import os


def known(rule):
    with open(os.path.join(os.path.dirname(os.path.abspath(__file__)), "known.txt"), encoding="utf-8") as file:
        rows = [line.split() for line in file if not line.startswith("#")]
    return {row[1] for row in rows if row and row[0] == rule}


def report(rule, wrong):
    """`wrong` has a sentence for each thing. Returns those that are not known, and says which need not be known."""
    allowed = known(rule)
    for what in sorted(allowed - wrong.keys()):
        print(f"tests/lint/known.txt: \"{rule} {what}\" can go")
    return [wrong[what] for what in sorted(wrong.keys() - allowed)]

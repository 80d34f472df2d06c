"""The objects of a verification that wait are those of a model in memory (spec/verify.md 1.1)."""

from __future__ import annotations

from contextlib import closing

from hypothesis import given
from hypothesis import strategies as st

from eventlog.core.ranges import RecordSet
from eventlog.verify.motion import Motion

KEYS = st.sampled_from(["id=1", "id=2", "id=3", "name=\ud800"])
CLASSES = st.sampled_from(["item", "part"])
STEPS = st.one_of(
    st.tuples(st.just("row"), CLASSES, KEYS, st.integers(1, 9)),
    st.tuples(st.just("keep"), CLASSES, KEYS, st.integers(0, 9)),
    st.tuples(st.sampled_from(["wait", "decide"]), CLASSES, KEYS, st.just(0)),
)


@given(st.lists(STEPS, max_size=25))
def test_rows_and_objects_are_those_of_a_model(steps: list[tuple[str, str, str, int]]) -> None:
    rows: dict[int, tuple[str, str]] = {}
    waiting: set[tuple[str, str]] = set()
    with closing(Motion()) as motion:
        for what, class_name, key, number in steps:
            match what:
                case "row":
                    motion.add_rows([(number, class_name, key)])
                    rows[number] = class_name, key
                case "keep":
                    motion.keep_rows(RecordSet(0, [(number, number + 2)]))
                    rows = {one: name for one, name in rows.items() if 0 <= one - number <= 2}
                case "wait":
                    motion.wait_for(class_name, [key])
                    waiting.add((class_name, key))
                case "decide":
                    motion.decide(class_name, [key])
                    waiting.discard((class_name, key))
        moving = set(rows.values())
        names = sorted(
            waiting, key=lambda name: (name[0], name[1].encode("utf-8", "surrogatepass"))
        )
        assert (motion.has_rows, motion.has_waiting) == (bool(rows), bool(waiting))
        assert list(motion.all_waiting()) == names
        for class_name in ("item", "part"):
            keys = ["id=1", "id=2", "id=3", "name=\ud800"]
            of_class = {key for name, key in moving if name == class_name}
            assert motion.moving(class_name, keys) == of_class
            assert motion.waiting(class_name, keys) == {
                key for name, key in waiting if name == class_name
            }
            assert motion.count_waiting().get(class_name, 0) == sum(
                name == class_name for name, _ in waiting
            )
            for key in keys:
                own = sorted(one for one, name in rows.items() if name == (class_name, key))
                assert motion.rows_of((class_name, key), 2) == own[:2]
        place, compared = ("", ""), []
        while part := motion.to_compare(place, 2):
            compared += [(part[0], key) for key in part[1]]
            place = compared[-1]
        assert compared == [name for name in names if name not in moving]

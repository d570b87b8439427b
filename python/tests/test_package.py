"""The package as it is installed: what it needs, what its stubs say, and its first program."""

import ast
import importlib.util
import pathlib
import subprocess
import sys
import textwrap

import pytest

import forebay
from forebay import _forebay

HERE = pathlib.Path(__file__).parent


def run(program: str) -> str:
    command = [sys.executable, "-c", textwrap.dedent(program)]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def test_nothing_is_imported_that_a_call_does_not_need(path):
    program = f"""
        import sys
        for missing in ("numpy", "pyarrow", "torch", "pandas", "ray"):
            sys.modules[missing] = None
        import forebay
        with forebay.open({str(path)!r}) as store:
            solver = store.create_table("solver", {{"response": "list<int32>", "answer": "utf8", "reward": "float32"}})
            reward = store.create_consumer("reward", tables=["solver"], kind="task", ready=["answer"])
            rows = solver.insert(policy_version=0, sample_ids=(f"q_{{n}}_0" for n in (0,)), response=[range(1, 3)], answer=(a for a in "4"))
            with reward.claim(size=1, timeout=0) as claim:
                assert claim["answer"] == ["4"] and claim["sample_id"] == ["q_0_0"]
                assert solver.cells(rows, "answer") == ["4"] and solver.cells(rows, "reward") == [None]
                for call in (
                    lambda: claim["response"],
                    lambda: claim["policy_version"],
                    lambda: claim.arrow(),
                    lambda: solver.cells(rows, "response"),
                    lambda: store.objects.set("w", {{"w": [1.0]}}),
                ):
                    try:
                        call()
                    except ImportError as missing:
                        assert "install" in str(missing)
                    else:
                        raise AssertionError
                claim.finish(reward=[1.0])
            assert len(store.sql("select * from solver")) == 1
            print(solver.counts()["written"])
    """
    assert run(program) == "1\n"


CLAIMED = """
    import numpy, forebay
    dtype = getattr(numpy, "dtype", None)
    with forebay.open({path!r}) as store:
        solver = store.create_table("solver", {{"response": "list<int32>"}})
        read = store.create_consumer("read", tables=["solver"], kind="task")
        solver.insert(policy_version=0, sample_ids=["q_0_0"], response=[[1, 2]])
        with read.claim(size=1, timeout=0) as claim:
            {replaced}
            try:
                claim["response"]
            except ImportError as refused:
                print(refused)
            {put_back}
"""


@pytest.mark.parametrize("instead", ["dtype('<i2')", "'<i4'"], ids=["of another width", "of another kind"])
def test_a_type_of_numpy_s_that_is_replaced_is_refused_and_the_next_call_looks_again(path, instead):
    replaced = f"numpy.dtype = lambda name: {instead} if name == '<i4' else dtype(name)"
    put_back = "numpy.dtype = dtype; print(claim['response'][0].tolist())"
    said = run(CLAIMED.format(path=str(path), replaced=replaced, put_back=put_back))
    refused, found = said.splitlines()
    assert 'numpy.dtype("<i4") gives' in refused and "4 bytes" in refused and found == "[1, 2]"


def test_a_numpy_without_its_c_interface_is_named(path, tmp_path):
    other = tmp_path / "other" / "numpy"
    other.mkdir(parents=True)
    (other / "__init__.py").write_text("__version__ = '9.9'\n")
    there = f"import sys; sys.path.insert(0, {str(other.parent)!r})\n"
    said = run(there + textwrap.dedent(CLAIMED.format(path=str(path), replaced="pass", put_back="pass")))
    assert said == "numpy 9.9 has no C interface that is known here; numpy 1.26 and 2 have\n"


def test_a_trainer_is_imported_by_whoever_asks_for_it_and_by_nobody_else():
    program = """
        import importlib, pkgutil, sys
        for missing in ("torch", "transformers", "safetensors", "peft"):
            sys.modules[missing] = None
        import forebay
        assert not any(name.startswith("forebay.trainer") for name in sys.modules)
        try:
            importlib.import_module("forebay.trainer")
        except ImportError as missing:
            print(missing.name)
    """
    assert run(program) == "torch\n"


def test_weights_reach_servers_without_any_library():
    program = """
        import sys
        for missing in ("torch", "numpy", "safetensors", "requests", "httpx"):
            sys.modules[missing] = None
        import forebay
        assert not any(name.startswith("forebay.inference") for name in sys.modules)
        import forebay.inference
        assert not any(name.startswith("forebay.trainer") for name in sys.modules)
        print(len(forebay.inference.__all__))
    """
    assert int(run(program)) > 30


def test_the_stubs_name_all_that_there_is_and_nothing_else():
    stubs = ast.parse((pathlib.Path(forebay.__file__).parent / "_forebay.pyi").read_text())
    classes = {node.name: node for node in stubs.body if isinstance(node, ast.ClassDef)}
    functions = {node.name for node in stubs.body if isinstance(node, ast.FunctionDef)}
    public = {name for name in vars(_forebay) if not name.startswith("_")}
    assert set(classes) | functions == public
    for name, node in classes.items():
        stubbed = {item.name for item in node.body if isinstance(item, ast.FunctionDef)}
        there = {member for member in vars(getattr(_forebay, name)) if not member.startswith("_")}
        assert {member for member in stubbed if not member.startswith("_")} == there, name
        assert all(hasattr(getattr(_forebay, name), member) for member in stubbed - {"__buffer__"}), name
    assert (pathlib.Path(forebay.__file__).parent / "py.typed").exists()


@pytest.mark.parametrize("document", ["python.md", "objects.md"])
def test_the_programs_of_the_documentation_run(path, document):
    text = (HERE.parent.parent / "docs" / document).read_text()
    programs = [block.split("```")[0] for block in text.split("```python\n")[1:]]
    assert programs
    run("\n".join(programs).replace("run/", f"{path}-"))


def test_the_quick_start_trains(path):
    example = HERE.parent / "examples" / "quickstart.py"
    result = subprocess.run([sys.executable, str(example), str(path)], check=True, capture_output=True, text=True)
    source = "torch" if importlib.util.find_spec("torch") else "the formula"
    assert f"gradients from {source}\n" in result.stdout and "the same gradient" in result.stdout, result.stdout

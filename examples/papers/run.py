"""Every figure and table that can be made here, of the papers that stanct follows.

    python run.py --list                     # names and titles
    python run.py gs-figure-1 --quick        # seconds; too short to compare with the paper
    python run.py gs-figure-2 --resume       # goes on with the parts that are done

A name writes three files into the folder `--out`: the numbers as NAME.csv, the picture as NAME.png,
and what agrees with the paper as NAME.txt. README.md is the gallery.
"""

from __future__ import annotations

import argparse
import csv
import io
import os
import signal
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import betancourt
import gobbo
import graham_storkey
import luo
import nemeth
from common import Item, Made, Work
from parts import EXECUTORS, Parts, Signals, executor
from PIL import Image

from stanct.work.blas import one_blas_thread

ITEMS: dict[str, Item] = {
    item.name: item
    for paper in (graham_storkey, nemeth, luo, betancourt, gobbo)
    for item in paper.ITEMS
}
DPI, COLOURS = 110, 128


def write(made: Made, folder: Path, name: str) -> None:
    """Write the three files of a figure."""
    with (folder / f"{name}.csv").open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, list(made.rows[0]), lineterminator="\n")
        writer.writeheader()
        for row in made.rows:
            writer.writerow({k: f"{v:.6g}" if isinstance(v, float) else v for k, v in row.items()})
    drawn = io.BytesIO()
    made.figure.savefig(drawn, format="png", dpi=DPI)
    picture = Image.open(drawn).convert("RGB").quantize(COLOURS, dither=Image.Dither.NONE)
    picture.save(folder / f"{name}.png", optimize=True)
    (folder / f"{name}.txt").write_text(made.says + "\n", encoding="utf-8")


def kept_in(item: Item, options: argparse.Namespace) -> Path:
    """The file of the finished parts."""
    return options.out / f"{item.name}{'.quick' if options.quick else ''}.parts.jsonl"


def whole(least: int) -> Callable[[str], int]:
    """What reads a whole number of at least this size from the command line."""

    def read(text: str) -> int:
        if not text.isdecimal() or int(text) < least:
            raise argparse.ArgumentTypeError(f"{text!r} is not a whole number from {least} on")
        return int(text)

    return read


def prepared(folder: Path) -> str:
    """Make the folder of the files. What is wrong with it, if anything."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as failure:
        return f"cannot make the folder {folder}: {failure.strerror or failure}"
    return "" if os.access(folder, os.W_OK) else f"the folder {folder} cannot be written to"


def foreign(item: Item, options: argparse.Namespace) -> list[str]:
    """What is wrong with options that mean nothing for a figure, or with each other."""
    parts = {
        "--only": options.only, "--resume": options.resume, "--seed": options.seed is not None,
        "--executor": options.executor != "serial", "--workers": options.workers is not None,
    }  # fmt: skip
    wanted = {"parts": parts, "repeats": {"--repeats": options.repeats is not None},
              "data": {"--data": options.data is not None},
              "lengths": {"--lengths": options.lengths}}  # fmt: skip
    given = [
        option for kind, own in wanted.items() if kind not in item.takes
        for option, used in own.items() if used
    ]  # fmt: skip
    wrong = [f"{item.name} takes no {' and no '.join(given)}"] if given else []
    if options.workers is not None and options.executor not in ("processes", "dask"):
        wrong.append("--workers needs --executor processes or dask")
    return wrong


def make(item: Item, options: argparse.Namespace, signals: Signals) -> None:
    """Make one figure and say what was written, and how long it took."""
    started = time.perf_counter()
    kept = kept_in(item, options)
    with executor(options.executor, options.workers) as chosen:
        parts = Parts(kept, chosen, tuple(options.only), signals=signals, anew=not options.resume)
        work = Work(
            options.quick, options.seed, parts, options.repeats, options.data,
            tuple(options.lengths),
        )  # fmt: skip
        with one_blas_thread():
            made = item.make(work)
    write(made, options.out, item.name)
    spent = sum(parts.seconds.values())
    print(f"{item.name}: {item.title}\n\n{made.says}\n")
    print(
        f"{item.name}.csv, .png and .txt are in {options.out}. This call took "
        f"{time.perf_counter() - started:.0f} s; all parts together took {spent:.0f} s."
    )


def main(arguments: Sequence[str] | None = None) -> None:
    """Parse the command line, and list the names or make a figure."""
    parser = argparse.ArgumentParser(description="Figures and tables of the papers.")
    parser.add_argument("name", nargs="?", help="a name from --list")
    parser.add_argument("--list", action="store_true", help="print names and titles")
    parser.add_argument("--quick", action="store_true", help="the short form, seconds")
    parser.add_argument("--resume", action="store_true", help="go on with finished parts")
    parser.add_argument("--executor", default="serial", help=EXECUTORS)
    parser.add_argument("--workers", type=whole(1), help="processes of the executor")
    parser.add_argument(
        "--repeats", type=whole(1), help="repetitions instead of the paper's number"
    )
    parser.add_argument(
        "--only", nargs="+", default=[], metavar="WORD", help="only parts whose key has a WORD"
    )
    parser.add_argument(
        "--lengths", nargs="+", type=whole(1), default=[], metavar="LENGTH",
        help="lengths of the chains of gs-figure-2, in its shortest",
    )  # fmt: skip
    parser.add_argument("--data", type=Path, help="folder of data that are not in the package")
    parser.add_argument("--seed", type=whole(0), help="1 without it")
    parser.add_argument("--out", type=Path, default=Path("papers_out"), help="folder of the files")
    options = parser.parse_args(arguments)
    if options.list:
        width = max(map(len, ITEMS))
        for item in ITEMS.values():
            print(f"{item.name:<{width}}  {item.title}")
        return
    if options.name is None:
        parser.error("give a name; --list prints them all")
    if options.name not in ITEMS:
        parser.error(f"give one of the names that --list prints, not {options.name!r}")
    if options.data is not None and not options.data.is_dir():
        parser.error(f"argument --data: there is no folder {options.data}")
    item = ITEMS[options.name]
    if useless := foreign(item, options):
        parser.exit(2, f"{parser.prog}: error: {'; '.join(useless)}\n")
    options.seed = 1 if options.seed is None else options.seed
    options.workers = options.workers or os.cpu_count() or 1
    if wrong := prepared(options.out):
        parser.error(f"argument --out: {wrong}")
    with Signals() as signals:
        try:
            make(item, options, signals)
        except KeyboardInterrupt:
            kept = kept_in(item, options)
            count = kept.read_bytes().count(b"\n") if kept.exists() else 0
            sys.stderr.write(
                f"\nInterrupted. Finished parts in {kept}: {count}. The others are not kept. "
                "The same command with --resume goes on from there.\n"
            )
            raise SystemExit(128 + (signals.number or signal.SIGINT)) from None


if __name__ == "__main__":
    main()

"""PyTorch: `python -m coll.torch` says what is installed, for which PyTorch, and tests it.  The back end is the package coll-torch,
which PyTorch finds itself: torch.distributed.init_process_group("coll")."""


def main() -> None:
    try:
        from coll_torch import __main__ as back_end  # type: ignore[import-not-found]
    except ImportError as error:
        raise SystemExit(f"the back end for PyTorch cannot be imported ({error}): pip install coll-torch") from None
    back_end.main()


if __name__ == "__main__":
    main()

"""Whether the driver answers for its GPUs and is the one that programs get. Judged from what the runner probed."""

from cudaup.smoke.verdict import FAIL, PASS, WAIVED, Json, Verdict, answer, context


def judge(gpu: Json) -> Verdict:
    """`gpu` is `gpus`, `driver`, `simulated` and `problems` as in the host's facts."""
    evidence: Json = {"driver": gpu["driver"], "gpus": len(gpu["gpus"])}
    loaded, library = gpu["driver"]["loaded"], gpu["driver"]["library"]
    if gpu["simulated"]:
        return Verdict(WAIVED, "simulated GPUs", evidence)
    if loaded is None and not gpu["gpus"]:
        return Verdict(WAIVED, "no NVIDIA driver is loaded here" + _because(gpu), evidence)
    if not gpu["gpus"]:
        return Verdict(FAIL, "the driver is loaded but no GPU answers" + _because(gpu), evidence)
    if library is not None and loaded != library:
        return Verdict(FAIL, f"the loaded driver is {loaded}, programs get {library}: a reboot is due", evidence)
    return Verdict(PASS, f"driver {loaded}, {len(gpu['gpus'])} GPUs answer", evidence)


def _because(gpu: Json) -> str:
    return f" ({'; '.join(gpu['problems'])})" if gpu["problems"] else ""


def main() -> None:
    answer(judge(context()["gpu"]))


if __name__ == "__main__":
    main()

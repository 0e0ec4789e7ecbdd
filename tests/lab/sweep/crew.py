"""Experiments on many stations at once; whatever is bad leaves its evidence in a folder."""

from __future__ import annotations

import json
import shutil
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from pathlib import Path

from tests.lab.sweep.experiment import Result, Trial
from tests.lab.sweep.station import HOST, Station

Make = Callable[[Station], Trial]
_ON_HOST = "cat /opt/cudaup/journal.jsonl; for f in transit lease adopted; do echo; cat /opt/cudaup/$f.json; done; "
_ON_HOST += "ls -l /opt/cudaup /opt/cudaup/links /root/.ml-env* -d; journalctl --no-pager -n 200; ps ax"


class Crew:
    """`count` stations. A station on which something went wrong is replaced: its host may be spoilt."""

    def __init__(self, count: int, folder: Path, tell: Callable[[Result], None]) -> None:
        self._count, self._folder, self._tell = count, folder, tell
        self._numbers = iter(range(1 << 30))
        self.results: list[Result] = []
        self.looks, self.cpu_s = 0, 0.0

    @property
    def bad(self) -> list[Result]:
        return [result for result in self.results if result.bad]

    @property
    def evidence(self) -> Path:
        return self._folder / "evidence"

    def work(self, trials: Iterable[Make]) -> None:
        """Until all are done. Raise what a station raised that does not come up."""
        queue = _Shared(iter(trials))
        troubles: list[BaseException] = []
        threads = [threading.Thread(target=self._serve, args=(queue, troubles)) for _ in range(self._count)]
        for thread in threads:
            thread.start()
        try:
            for thread in threads:
                thread.join()
        finally:
            queue.end()  # Ctrl-C: what is under way ends, its labs go down, nothing else is begun
        if troubles:
            raise troubles[0]

    def _serve(self, queue: _Shared, troubles: list[BaseException]) -> None:
        station = None
        try:
            for make in queue:
                station = station or Station.up(self._folder / f"station-{next(self._numbers)}")
                result = make(station).run()
                self._keep(station, result)
                if result.bad:
                    self._leave(station)
                    station = None
        except BaseException as error:  # noqa: BLE001 - raised again by `work`, in its own thread
            troubles.append(error)
        finally:
            if station is not None:
                self._leave(station)

    def _leave(self, station: Station) -> None:
        self.looks += station.watcher.looks
        with suppress(FileNotFoundError):  # a lab that was taken down by somebody else
            self.cpu_s += station.cpu_s
        station.down()
        shutil.rmtree(station.folder, ignore_errors=True)

    def _keep(self, station: Station, result: Result) -> None:
        self.results.append(result)
        if result.bad:
            keep_evidence(station, result, self.evidence / result.name.replace("/", "-"))
        self._tell(result)


class _Shared(Iterator[Make]):
    """One iterator for several threads."""

    def __init__(self, of: Iterator[Make]) -> None:
        self._of, self._lock = of, threading.Lock()

    def __next__(self) -> Make:
        with self._lock:
            return next(self._of)

    def end(self) -> None:
        with self._lock:
            self._of = iter(())


def keep_evidence(station: Station, result: Result, folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "result.txt").write_text("\n".join([result.name, *result.bad, "", result.said]))
    (folder / "reader.jsonl").write_text("".join(f"{json.dumps(each)}\n" for each in station.watcher.seen))
    with suppress(Exception):  # a host that is off, or a lab that is gone, has nothing to say
        (folder / "host.txt").write_text(station.lab.run(HOST, ["sh", "-c", _ON_HOST], check=False).stdout)
        (folder / "status.json").write_text(json.dumps(station.ask("status"), indent=1))
        shutil.copy(station.lab.directory / "lab.log", folder / "lab.log")
    shutil.copytree(station.folder, folder / "runs", dirs_exist_ok=True)

"""Single events with an access token, interleaved with the same load with a key."""

from collections.abc import Iterator

from tests.support.issuer import running_issuer

from bench.ingest import CONNECTIONS, WARM_UP_S
from bench.options import REPOSITORY, DataRoot, Rounds, Seconds
from bench.results import Goal, Result
from bench.server import Server, fresh_folder
from bench.wrk import Burst, burst, ratios, write_single_bodies


def measure(seconds: Seconds = 6, rounds: Rounds = 5, data_root: DataRoot = REPOSITORY) -> Iterator[Result]:
    """Throughput and latency of single events with an access token, against those with a key."""
    key_bursts: list[Burst] = []
    token_bursts: list[Burst] = []
    with fresh_folder(data_root) as folder, running_issuer() as issuer:
        folder.identity.write_text(issuer.toml())
        with Server(folder) as server:
            bodies = write_single_bodies(folder.path / "bodies")
            token = issuer.token(scope="embedsink:ingest", exp=4_102_444_800)  # the year 2100
            for length in [WARM_UP_S] + [seconds] * rounds:
                for credential, bursts in ((server.ingest_key, key_bursts), (token, token_bursts)):
                    bursts.append(burst(server, bodies, key=credential, connections=CONNECTIONS, seconds=length))
                    server.catch_up()
    yield from ratios("ingest, token / key", token_bursts[1:], key_bursts[1:], speed=Goal(at_least=0.8))

"""`barnabas serve`: the declared options, for the help, the errors of usage and the reference page."""

from typing import Annotated

from barnabas.cli.framework.app import App, Option
from barnabas.cli.framework.output import print_json
from barnabas.cli.serve.start_broker import LOG_LEVELS, ServeOptions, run_broker
from barnabas.errors import UsageError

app = App("Run a broker in the foreground, or a cluster of several.")


@app.command(
    "",
    example="barnabas serve --data-dir data\n"
    "barnabas serve --data-dir data --brokers 3 --listen 127.0.0.1:9092\n"
    "barnabas serve --data-dir data --listen 0.0.0.0:9092 --set advertised.listeners=PLAINTEXT://kafka.example.org:9092",
)
def serve(
    data_dir: Annotated[
        list[str] | None, Option(metavar="DIR", help="Where the log lives (log.dirs); repeat for several disks.")
    ] = None,
    listen: Annotated[
        str | None, Option(metavar="HOST:PORT,...", help="Addresses to listen on (listeners); port 0: any free.")
    ] = None,
    ready_file: Annotated[
        str | None,
        Option(metavar="FILE", takes_bytes=True, help="Written with host:port once a produce would succeed."),
    ] = None,
    config: Annotated[
        list[str] | None, Option(metavar="FILE", takes_bytes=True, help="A server.properties; repeat, later files win.")
    ] = None,
    settings: Annotated[
        list[str] | None,
        Option("--set", metavar="NAME=VALUE", help="Any setting by Kafka's name, such as log.segment.bytes=1048576."),
    ] = None,
    node_id: Annotated[str | None, Option(metavar="N", help="The broker's id (node.id).")] = None,
    registry: Annotated[
        str | None, Option(metavar="FILE", help="The registry that the brokers of a cluster share (registry.file).")
    ] = None,
    zookeeper: Annotated[
        str | None,
        Option(metavar="HOST:PORT,.../PATH", help="ZooKeeper as the registry of several machines (zookeeper.connect)."),
    ] = None,
    brokers: Annotated[
        int | None,
        Option(
            metavar="N",
            minimum=1,
            maximum=100,
            help="Run a cluster: brokers 1 to N, each a process, on N ports from that of --listen on. A broker that "
            "has run alone in the data directory goes on as broker 1.",
        ),
    ] = None,
    racks: Annotated[
        str | None, Option(metavar="RACK,...", help="The rack of each broker of --brokers (broker.rack).")
    ] = None,
    log_level: Annotated[str | None, Option(metavar="LEVEL", help=f"{', '.join(LOG_LEVELS)} (info).")] = None,
    lost_dir: Annotated[
        list[str] | None,
        Option(
            metavar="ID",
            help="Start without the data directory of this directory.id, which is lost for good; repeat for several.",
        ),
    ] = None,
    accept_old_dir: Annotated[
        list[str] | None,
        Option(
            metavar="ID",
            help="Serve what the data directory of this directory.id has, an old copy, where nobody else has newer "
            "records; repeat for several.",
        ),
    ] = None,
    check: Annotated[
        bool, Option(help="Read the settings, say all that is wrong with them, and exit with 0 or 2.")
    ] = False,
    help_settings: Annotated[bool, Option(help="Print all settings and exit.")] = False,
    json: Annotated[bool, Option(help="Print that it is ready as a JSON object, and the settings, too.")] = False,
) -> int:
    """Run a broker in the foreground until SIGTERM or Ctrl-C, or a cluster of several.

    The line "is ready" is printed, and the ready file written, only once a produce would succeed. Settings come from
    --config files, the environment (BARNABAS_LOG_SEGMENT_BYTES for log.segment.bytes), --set and the options here;
    later ones win.

    SIGHUP, as when the terminal is closed, also ends all brokers in order, with exit code 0; under nohup it does not.
    """
    if help_settings:
        from barnabas.config.docs import render_help, settings_as_dicts

        if json:
            print_json(settings_as_dicts())
        else:
            print(render_help())
        return 0
    options = ServeOptions(
        tuple(data_dir or ()),
        listen,
        ready_file,
        tuple(config or ()),
        tuple(settings or ()),
        node_id,
        log_level,
        json,
        tuple(lost_dir or ()),
        registry,
        zookeeper,
        tuple(accept_old_dir or ()),
    )
    if check:
        from barnabas.cli.serve.check_settings import check_settings

        return check_settings(options, brokers, _racks(racks) if racks is not None else [])
    if brokers is not None:
        from barnabas.cli.serve.start_cluster import run_cluster

        return run_cluster(options, brokers, _racks(racks) if racks is not None else [])
    if racks is not None:
        raise UsageError(f"--racks {racks}: is for --brokers; one broker has --set broker.rack={racks}")
    return run_broker(options)


def _racks(text: str) -> list[str]:
    racks = [rack.strip() for rack in text.split(",")]
    if not all(racks):
        raise UsageError(f"--racks {text!r}: the name of a rack is missing; name one for each broker, such as a,b,c")
    return racks

"""`barnabas profiles`: lists the profiles, named files of client settings."""

from barnabas.cli.framework.app import App
from barnabas.cli.framework.options import BOOTSTRAP, Json
from barnabas.cli.framework.output import print_json, table
from barnabas.cli.framework.profile_files import SUFFIX, profile_directory, profile_file, profile_names

app = App("List profiles: named files of client settings, used with --profile.", default="list")


@app.command(
    "list",
    example="barnabas profiles",
    notes="""\
A profile is a file NAME.properties in $XDG_CONFIG_HOME/barnabas/profiles (~/.config/barnabas/profiles) with a
setting on each line, as Kafka's own tools take it with --command-config:

  bootstrap.servers=kafka-1.example.org:9093,kafka-2.example.org:9093
  security.protocol=SASL_SSL
  sasl.mechanism=SCRAM-SHA-256
  sasl.username=me
  sasl.password=secret
  schema.registry.url=https://registry.example.org

Every command that talks to brokers takes --profile NAME. Options on the command line win over the profile.
""",
)
def list_profiles(json: Json = False) -> None:
    """List the profiles with their files and brokers."""
    from barnabas.config.sources import read_properties

    found = []
    for name in profile_names():
        file = profile_file(name)
        found.append({"profile": name, "bootstrap": read_properties(file).get(BOOTSTRAP), "file": file})
    if json:
        print_json(found)
    elif found:
        print(table(("profile", "brokers", "file"), [tuple(row.values()) for row in found]))
    else:
        print(f"no profiles; one is a file NAME{SUFFIX} in {profile_directory()}")

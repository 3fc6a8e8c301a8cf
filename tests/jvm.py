"""How tests start Java programs, most of which end before a second compiler would pay."""

import shutil

QUICK = ("-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")
JVM = (shutil.which("java") or "java", *QUICK)
QUICK_OPTIONS = " ".join(QUICK)

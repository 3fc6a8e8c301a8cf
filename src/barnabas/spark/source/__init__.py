"""The data source for reading: plans on the driver which offsets are read, and reads them in tasks."""

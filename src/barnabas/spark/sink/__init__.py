"""The data source for writing: writes rows in tasks, and commits their transactions on the driver."""

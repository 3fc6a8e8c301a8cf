"""`barnabas pipeline demo`: a year of flights as events, through Spark and back, every figure compared with pandas."""

__version__ = "2.1.0+made.up"
hip: str = '5.7.24164'
cuda: None = None

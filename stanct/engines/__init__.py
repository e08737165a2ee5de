"""What runs Stan: the embedded engine, CmdStan, and where a CmdStan comes from."""

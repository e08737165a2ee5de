"""The engines that run Stan: the embedded engine and CmdStan, with its installation."""

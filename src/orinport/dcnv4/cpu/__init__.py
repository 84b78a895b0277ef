"""The operators on a CPU: C, compiled once with the system's compiler and kept in the user's cache."""

from orinport.dcnv4.cpu.build import CompileError, kernels
from orinport.dcnv4.cpu.library import Library

__all__ = ["CompileError", "Library", "kernels"]

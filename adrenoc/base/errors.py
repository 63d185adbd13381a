"""Every failure that a user can meet, each with its own exit code.

A message says what went wrong, where (node, file or key), what was seen and what was expected;
the hint is the next command to type.  Exit codes start at 10: 1 and 2 belong to Python and click.
"""

from typing import ClassVar


class AdrenocError(Exception):
    """A failure with one clear sentence, a hint and an exit code of its own."""

    exit_code: ClassVar[int] = 10

    def __init__(self, message: str, *, hint: str) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint


class ModelNotFoundError(AdrenocError):
    """The model file (or a file that it refers to) does not exist or cannot be read."""

    exit_code = 11


class ModelFormatError(AdrenocError):
    """The file is not a model of the format that its name promises, or it is damaged."""

    exit_code = 12


class UnsupportedOperatorError(AdrenocError):
    """The model holds operators that adrenoc cannot import."""

    exit_code = 13


class CustomDomainError(AdrenocError):
    """The model holds operators of a domain that adrenoc does not know."""

    exit_code = 14


class ShapeError(AdrenocError):
    """A shape option does not fit the model, or a shape that is needed is missing."""

    exit_code = 15


class TargetError(AdrenocError):
    """The device name is unknown, or a target file is wrong."""

    exit_code = 16


class OptionError(AdrenocError):
    """A preset or an option is unknown or has a value that it cannot have."""

    exit_code = 17


class OutputError(AdrenocError):
    """The output could not be written: no permission, no space, or something in the way."""

    exit_code = 18


class ToolError(AdrenocError):
    """An outside tool (compiler, linker, the runtime of a reference) failed."""

    exit_code = 19


class LinkError(AdrenocError):
    """The linked library is not what the device needs."""

    exit_code = 20


class BundleError(AdrenocError):
    """A bundle is missing, damaged, of another version or for another machine."""

    exit_code = 21


class DeviceError(AdrenocError):
    """No OpenCL device, or the device refused a call."""

    exit_code = 22


class CheckFailedError(AdrenocError):
    """The numbers of the device and of the reference disagree."""

    exit_code = 23


class InputError(AdrenocError):
    """An input array or image does not fit the model."""

    exit_code = 24


class DependencyError(AdrenocError):
    """A package that this command needs is missing or has a version that does not work."""

    exit_code = 25


class CompileError(AdrenocError):
    """The model imports, but a part of it cannot be compiled for this device."""

    exit_code = 26


class DiskFullError(OutputError):
    """The output did not fit: the disk or the quota is full."""

    exit_code = 27


class RemoteError(AdrenocError):
    """The RPC server is not there, refused, was cut off or took too long."""

    exit_code = 28


class DeviceMemoryError(DeviceError):
    """The device has no memory left for the bundle."""

    exit_code = 29


class AdbError(AdrenocError):
    """adb has no such device, or the device cannot be used."""

    exit_code = 30


class AppError(AdrenocError):
    """An APK or AAR would not work on a phone as it is."""

    exit_code = 31


class PolicyError(AdrenocError):
    """A plan breaks limits that were given, or what changed breaks gates."""

    exit_code = 33


class MemoryLimitError(AdrenocError):
    """No plan of the model fits into the memory that it may take."""

    exit_code = 34


class TuningLogError(AdrenocError):
    """A tuning log is missing, damaged, of another version, or in use."""

    exit_code = 36


class PrecisionPolicyError(AdrenocError):
    """A precision policy is missing or damaged, or is for another model or preset."""

    exit_code = 38


class HostMemoryError(AdrenocError):
    """This machine has no memory left for what it was to do."""

    exit_code = 39


class DefectError(AdrenocError):
    """What adrenoc made of the model breaks a rule: a defect of adrenoc, and nothing is written."""

    exit_code = 40

    def __init__(self, rule: str) -> None:
        self.rule = rule
        super().__init__(
            f"{rule}: a defect of adrenoc, not of the model; nothing was written",
            hint="report this line with the model and the command; --preset debug names the stage",
        )


class LockError(AdrenocError):
    """What a build reads or makes differs from its lock, or the lock is missing or damaged."""

    exit_code = 45


class AccuracyError(AdrenocError):
    """No choice of tensors in float32 meets the accuracy that was asked for, or logits are NaN."""

    exit_code = 43


class RefusedError(Exception):
    """A case that a rule does not cover, which no user meets as it is; the text says why. Whoever
    asked takes the next rule, or lists the case with the reason in an error for the user."""

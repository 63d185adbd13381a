"""Every failure that a user can meet, each with its own exit code.

A message says what went wrong, where (node, file or key), what was seen and what was expected;
the hint is the next command to type.  Exit codes start at 10: 1 and 2 belong to Python and click.
"""

from typing import ClassVar


class AdrenocError(Exception):
    """A failure with one clear sentence, a hint and an exit code of its own."""

    exit_code: ClassVar[int] = 10

    def __init_subclass__(cls, *, code: int = 0) -> None:
        cls.exit_code = code or cls.exit_code

    def __init__(self, message: str, *, hint: str) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint


class ModelNotFoundError(AdrenocError, code=11):
    """The model file (or a file that it refers to) does not exist or cannot be read."""


class ModelFormatError(AdrenocError, code=12):
    """The file is not a model of the format that its name promises, or it is damaged."""


class UnsupportedOperatorError(AdrenocError, code=13):
    """The model holds operators that adrenoc cannot import."""


class CustomDomainError(AdrenocError, code=14):
    """The model holds operators of a domain that adrenoc does not know."""


class ShapeError(AdrenocError, code=15):
    """A shape option does not fit the model, or a shape that is needed is missing."""


class TargetError(AdrenocError, code=16):
    """The device name is unknown, or a target file is wrong."""


class OptionError(AdrenocError, code=17):
    """A preset or an option is unknown or has a value that it cannot have."""


class OutputError(AdrenocError, code=18):
    """The output could not be written: no permission, no space, or something in the way."""


class ToolError(AdrenocError, code=19):
    """An outside tool (compiler, linker, the runtime of a reference) failed."""


class LinkError(AdrenocError, code=20):
    """The linked library is not what the device needs."""


class BundleError(AdrenocError, code=21):
    """A bundle is missing, damaged, of another version or for another machine."""


class DeviceError(AdrenocError, code=22):
    """No OpenCL device, or the device refused a call."""


class CheckFailedError(AdrenocError, code=23):
    """The numbers of the device and of the reference disagree."""


class InputError(AdrenocError, code=24):
    """An input array or image does not fit the model."""


class DependencyError(AdrenocError, code=25):
    """A package that this command needs is missing or has a version that does not work."""


class CompileError(AdrenocError, code=26):
    """The model imports, but a part of it cannot be compiled for this device."""


class DiskFullError(OutputError, code=27):
    """The output did not fit: the disk or the quota is full."""


class RemoteError(AdrenocError, code=28):
    """The RPC server is not there, refused, was cut off or took too long."""


class DeviceMemoryError(DeviceError, code=29):
    """The device has no memory left for the bundle."""


class AdbError(AdrenocError, code=30):
    """adb has no such device, or the device cannot be used."""


class AppError(AdrenocError, code=31):
    """An APK or AAR would not work on a phone as it is."""


class PolicyError(AdrenocError, code=33):
    """A plan breaks limits that were given, or what changed breaks gates."""


class MemoryLimitError(AdrenocError, code=34):
    """No plan of the model fits into the memory that it may take."""


class TuningLogError(AdrenocError, code=36):
    """A tuning log is missing, damaged, of another version, or in use."""


class PrecisionPolicyError(AdrenocError, code=38):
    """A precision policy is missing or damaged, or is for another model or preset."""


class HostMemoryError(AdrenocError, code=39):
    """This machine has no memory left for what it was to do."""


class DefectError(AdrenocError, code=40):
    """What adrenoc made of the model breaks a rule: a defect of adrenoc, and nothing is written."""

    def __init__(self, rule: str) -> None:
        self.rule = rule
        super().__init__(
            f"{rule}: a defect of adrenoc, not of the model; nothing was written",
            hint="report this line with the model and the command; --preset debug names the stage",
        )


class LockError(AdrenocError, code=45):
    """What a build reads or makes differs from its lock, or the lock is missing or damaged."""


class AccuracyError(AdrenocError, code=43):
    """No choice of tensors in float32 meets the accuracy that was asked for, or logits are NaN."""


class RefusedError(Exception):
    """A case that a rule does not cover, which no user meets as it is; the text says why. Whoever
    asked takes the next rule, or lists the case with the reason in an error for the user."""

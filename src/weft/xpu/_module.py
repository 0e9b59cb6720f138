"""The functions of this type of devices."""

from weft._devices.device_type import DeviceType, module_of

__getattr__, __dir__ = module_of(DeviceType("xpu"), "weft.xpu")

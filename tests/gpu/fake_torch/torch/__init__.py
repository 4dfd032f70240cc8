"""A stand-in for PyTorch, for testing what tools/gpu_check does around a model where there is no GPU:
every name exists and accepts everything; a model's call launches kernels through the driver API, so
that lull sees a client. It computes nothing and is no PyTorch.
"""

import ctypes
import os

__version__ = "0.0 (stand-in)"
_PTX = b".version 6.0\n.target sm_52\n.address_size 64\n.visible .entry work(.param .u64 spin_ns)\n{\n  ret;\n}\n"
_SHAPES = int(os.environ.get("FAKE_TORCH_SHAPES", "1"))
_KERNELS = max(5, _SHAPES)  # of a call


class _Gpu:
    def __init__(self):
        self.driver = ctypes.CDLL("libcuda.so.1")
        self.context, self.module, self.function = (ctypes.c_void_p() for _ in range(3))
        device = ctypes.c_int()
        for result in (self.driver.cuInit(0), self.driver.cuDeviceGet(ctypes.byref(device), 0),
                       self.driver.cuDevicePrimaryCtxRetain(ctypes.byref(self.context), device),
                       self.driver.cuCtxSetCurrent(self.context),
                       self.driver.cuModuleLoadData(ctypes.byref(self.module), _PTX),
                       self.driver.cuModuleGetFunction(ctypes.byref(self.function), self.module, b"work")):
            if result != 0:
                raise RuntimeError(f"the driver answered {result}")

    def work(self):
        spin_ns = ctypes.c_uint64(20000)
        arguments = (ctypes.c_void_p * 1)(ctypes.cast(ctypes.byref(spin_ns), ctypes.c_void_p))
        for n in range(_KERNELS):
            self.driver.cuLaunchKernel(self.function, 4 + n % _SHAPES, 1, 1, 64, 1, 1, 0, None, arguments, None)


_gpu = None


def _work():
    global _gpu
    _gpu = _gpu or _Gpu()
    if _profile:
        _profile.works += 1
    _gpu.work()


class Anything:
    """Every attribute, call, item and context of it is one too; a number where one is asked for."""

    def __init__(self, *_, **__):
        pass

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return Anything()

    def __call__(self, *_, **__):
        return Anything()

    def __getitem__(self, _):
        return Anything()

    def __iter__(self):
        return iter((Anything(), Anything()))

    def __enter__(self):
        return self

    def __exit__(self, *_):
        return False

    def __bool__(self):
        return True

    def _arithmetic(self, *_):
        return Anything()

    __add__ = __mul__ = __le__ = _arithmetic

    def dim(self):
        return 2

    def chunk(self, count, **_):
        return [Anything() for _ in range(count)]


class _Model(Anything):
    def __call__(self, *_, **__):
        _work()
        return Anything()

    def eval(self):
        return self

    def train(self):
        return self

    def cuda(self):
        return self

    def replay(self):
        _work()


class _Cuda(Anything):
    CUDAGraph = _Model

    def is_available(self):
        return True

    def get_device_name(self):
        return "stand-in"

    def synchronize(self):
        if _gpu:
            _gpu.driver.cuCtxSynchronize()


class _Nn(Anything):
    def __getattr__(self, name):
        return Anything() if name == "functional" else _Model if name == "Sequential" else Anything


class _Profile:
    """Knows that each work is five kernels of one name and shape."""

    def __init__(self, **_):
        self.works = 0

    def __enter__(self):
        global _profile
        _profile = self
        return self

    def __exit__(self, *_):
        return False

    def export_chrome_trace(self, path):
        import json
        event = {"cat": "kernel", "name": "work", "args": {"grid": [4, 1, 1], "block": [64, 1, 1]}}
        with open(path, "w") as file:
            json.dump({"traceEvents": [event] * (_KERNELS * self.works)}, file)


class _Profiler(Anything):
    profile = _Profile


_profile = None
profiler = _Profiler()


def compile(model):  # pylint: disable=redefined-builtin
    return model


cuda, nn = _Cuda(), _Nn()


class version:  # pylint: disable=invalid-name
    cuda = "13.0"


def __getattr__(name):
    if name.startswith("__"):
        raise AttributeError(name)
    return Anything()

"""Why each verdict of the layer driver is right."""

ARGUED: dict[str, str] = {
    "DRV03": "nvidia-smi: GSP firmware 580.159.04",
    "DRV04": "Hopper takes either module",
    "DRV06": "no InfiniBand device",
    "DRV09": "device files were not recorded",
    "DRV10": "RegistryDwords is empty, EnableMSI 1; NvLinkDisable is 1, which one GPU does not feel",
    "DRV13": "no AMD device",
    "DRV02": "CUDA 13.0 both",
    "DRV07": "no InfiniBand device",
    "DRV11": "nvidia-persistenced does not run; nvidia-smi holds persistence itself",
}

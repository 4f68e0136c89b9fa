"""Why each verdict of the layer gpu is right."""

ARGUED: dict[str, str] = {
    "GPU04": "the recording's NVML was not asked for the counters",
    "GPU13": "no NVSwitch is passed through, and no SXid in dmesg",
    "GPU15": "nvidia-smi: Default",
    "GPU16": "no MPS process",
    "GPU19": "the recording's NVML was not asked",
    "GPU20": "one GPU",
    "GPU21": "the recording's NVML was not asked",
    "GPU22": "the recording's NVML was not asked; nvidia-smi prints N/A",
    "GPU23": "`Disabled by default` in the GPU's power file",
    "GPU25": "no AMD GPU",
    "GPU26": "no AMD GPU",
    "GPU27": "nvidia-smi: no running processes, and process 2 is kthreadd: all of them can be seen",
    "GPU28": "nobody ran DCGM there",
}

"""Run bundles on a device.  Knows bundles and manifests, nothing of how they are compiled."""

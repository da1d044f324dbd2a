"""What a release needs: addresses and a version, bare installs, a conda recipe, a container."""

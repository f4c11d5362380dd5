"""Running a W&B sweep file on this machine: no server, resumable, several runs at a time."""

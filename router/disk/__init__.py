"""Files on a disk: SQLite files, group commit of changes to them, a check for free space. Imports no other package of
this project."""

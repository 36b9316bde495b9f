"""What is kept on a disk: files of SQLite, changes on their way there, room for them. Imports nothing of ours."""

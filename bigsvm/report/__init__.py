"""Text, tables and images for people: progress, results and files of predictions.

The input is events of training, certificates, stores and values; the output is lines for the
terminal and files. `describe` says what a run led to, `progress` follows events, `predictions`
writes values, `doubt` shows doubtful labels. A new event is shown in `progress`, a new result in
`describe`.
"""

"""Pictures made by rule: centres that really differ, and samples that are not equally worth a label."""

"""From a download to a prepared data set: found, checked, decoded, split and written."""

"""Collections of vector databases and search engines that others have filled, as sources; never written."""

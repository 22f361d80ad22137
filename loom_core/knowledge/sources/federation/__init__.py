"""Federation: several sources searched as one."""

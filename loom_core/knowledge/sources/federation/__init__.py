"""Federation: several sources asked as one."""

package finding

// nodeRules are the rules about the node stage.
func nodeRules() []Rule {
	return []Rule{{
		ID: "machine-config-runlevel", Severity: Warning, Summary: "MachineConfigs are at runlevel 80 or later.",
		Why:    "An update may drain and reboot each node twice: once for the MachineConfig, and once for the changes that the new node stage brings.",
		Remedy: "rename the file to 0000_80_<component>_<rest>, or use a later runlevel",
	}}
}

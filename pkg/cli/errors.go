package cli

import (
	"io"

	"github.com/spf13/cobra"

	"github.com/cluster-version/cvo/pkg/cli/command"
	"github.com/cluster-version/cvo/pkg/cli/printing"
)

// PrintError prints the error of the executed command: as text, or with --output=json as one JSON object on one line.
func PrintError(w io.Writer, executed *cobra.Command, err error) {
	if !command.IsPrinted(err) || !wantsJSON(executed) {
		command.PrintError(w, err)
		return
	}
	_ = printing.JSONLine(w, struct { // there is nothing left to report this error to
		Error    string `json:"error"`
		ExitCode int    `json:"exitCode"`
	}{err.Error(), command.ExitCode(err)})
}

// wantsJSON reports whether a command prints JSON. Commands of OpenShift's client always print errors as text, as that client does.
func wantsJSON(cmd *cobra.Command) bool {
	if cmd == nil {
		return false
	}
	output := cmd.Flags().Lookup("output")
	return output != nil && output.Value.String() == printing.FormatJSON && !isOfOc(cmd)
}

// isOfOc reports whether OpenShift's client has the command too.
func isOfOc(cmd *cobra.Command) bool {
	parent := ""
	if cmd.HasParent() {
		parent = cmd.Parent().Name()
	}
	switch parent + " " + cmd.Name() {
	case "release extract", "release info", "release mirror", "release new",
		"upgrade accept", "upgrade channel", "upgrade recommend", "upgrade rollback", "upgrade status":
		return true
	}
	return cmd.Name() == "upgrade"
}

package command

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// FlagError returns the error of an unknown or invalid flag, with flags of a similar name.
func FlagError(cmd *cobra.Command, err error) error {
	if unknown, ok := errors.AsType[*pflag.NotExistError](err); ok && unknown.GetSpecifiedShortnames() == "" {
		// cobra compares only the names of commands.
		names := &cobra.Command{SuggestionsMinimumDistance: maxTypos}
		cmd.Flags().VisitAll(func(f *pflag.Flag) {
			if !f.Hidden {
				names.AddCommand(&cobra.Command{Use: "--" + f.Name, Run: func(*cobra.Command, []string) {}})
			}
		})
		err = withSuggestions(err, names.SuggestionsFor("--"+unknown.GetSpecifiedName()))
	}
	return &UsageError{Err: err}
}

// maxTypos is the maximum number of characters by which a suggestion differs from the user's input, unless it begins with that input.
const maxTypos = 2

// maxSuggestions is the maximum number of suggestions.
const maxSuggestions = 3

// suggestCommands adds subcommands of a similar name to the error about an unknown subcommand.
func suggestCommands(cmd *cobra.Command, typed string, err error) error {
	cmd.SuggestionsMinimumDistance = maxTypos
	return withSuggestions(err, cmd.SuggestionsFor(typed))
}

func withSuggestions(err error, names []string) error {
	if len(names) == 0 {
		return err
	}
	slices.Sort(names)
	return fmt.Errorf("%w: did you mean %s?", err, strings.Join(names[:min(len(names), maxSuggestions)], " or "))
}

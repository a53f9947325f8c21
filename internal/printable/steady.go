package printable

import "regexp"

// ownAddress matches the local ip:port in network and DNS errors.
var ownAddress = regexp.MustCompile(`(?:[0-9]{1,3}(?:\.[0-9]{1,3}){3}|\[[0-9A-Za-z:.%_-]+\]):[0-9]+->`)

// Steady removes the local address from an error text. Its port differs each time, so a repeated error would seem to be a new one.
func Steady(text string) string { return ownAddress.ReplaceAllString(text, "") }

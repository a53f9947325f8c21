package clusterversion

import "regexp"

// ownAddress is the side of a connection that the system chose, as errors of connections and of questions to name servers
// have it.
var ownAddress = regexp.MustCompile(`(?:[0-9]{1,3}(?:\.[0-9]{1,3}){3}|\[[0-9A-Za-z:.%_-]+\]):[0-9]+->`)

// steady takes from what others say of an error our own side of connections: its port is another each time, and what
// conditions and events tell must not waver.
func steady(text string) string { return ownAddress.ReplaceAllString(text, "") }

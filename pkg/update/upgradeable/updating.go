package upgradeable

// updating returns an obstacle during a rollout. Components are tested with others that are one minor version apart, and two updates at
// once would put them further apart.
func updating(in Input) []Obstacle {
	if !in.Updating {
		return nil
	}
	return []Obstacle{{
		Source: SourceUpdating, Reason: "UpdateInProgress", Risk: SourceUpdating, URL: docs("update-in-progress"),
		Message: "An update is already in progress and the details are in the Progressing condition.",
	}}
}

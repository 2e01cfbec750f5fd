package jail

// unusedNumbers returns the numbers that no call has: those for other machines, and those kept free so that later calls have
// one number everywhere.
func unusedNumbers() []span { return []span{{244, 259}, {295, 423}} }

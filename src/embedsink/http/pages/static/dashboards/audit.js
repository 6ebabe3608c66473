// The page of the audit trail works without scripts. On narrow screens, this shows its tab in the navigation bar.

document.querySelector(".tabs [aria-current]")?.scrollIntoView({ inline: "center", block: "nearest" });

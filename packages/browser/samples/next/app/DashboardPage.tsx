"use client";

import { useState } from "react";
import { useForwarder } from "./useForwarder";

interface Props {
  embedUrl: string;
  endpoint: string;
  ingestKey: string;
}

function Dashboard({ embedUrl, endpoint, ingestKey }: Props) {
  useForwarder({ endpoint, key: ingestKey, origin: new URL(embedUrl).origin, context: { viewer: "u_42" } });
  return <iframe src={embedUrl} title="Dashboard" />;
}

export function DashboardPage(props: Props) {
  const [isShown, setIsShown] = useState(true);
  return (
    <>
      <button onClick={() => setIsShown(!isShown)}>{isShown ? "Hide" : "Show"} the dashboard</button>
      {isShown && <Dashboard {...props} />}
    </>
  );
}

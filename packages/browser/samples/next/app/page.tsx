import { embedUrl } from "@embedsink/browser";
import { DashboardPage } from "./DashboardPage";

// Render for each request: the environment has the URLs and the key when the server starts.
export const dynamic = "force-dynamic";

/** A page that the server renders. Your backend would request the session of the embed here. */
export default function Page() {
  const base = process.env.EMBED_BASE!;
  const server = process.env.EMBEDSINK_URL!;
  return (
    <DashboardPage
      embedUrl={embedUrl({ base, publicId: "d_81f2", session: "credential-1" })}
      endpoint={`${server}/api/v1/events`}
      ingestKey={process.env.EMBEDSINK_KEY!}
    />
  );
}

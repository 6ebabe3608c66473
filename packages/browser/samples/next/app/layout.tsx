import type { ReactNode } from "react";

// The iframe loads before the page is hydrated. This script keeps the messages until the forwarder starts.
const KEEP_MESSAGES = `embedsink=[];addEventListener("message",e=>embedsink[98]||embedsink.push(e))`;

export default function Layout({ children }: { children: ReactNode }) {
  return (
    <html lang="en">
      <head>
        <script dangerouslySetInnerHTML={{ __html: KEEP_MESSAGES }} />
      </head>
      <body>{children}</body>
    </html>
  );
}

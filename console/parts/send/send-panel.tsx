interface SendPanelProps {
  kind: "newsletter" | "campaign";
  id: string;
  name: string;
  status: string;
}

/** Sends a draft, and shows how its send goes. */
export function SendPanel(_props: SendPanelProps) {
  return null;
}

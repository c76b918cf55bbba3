import { PageHead } from "../parts/page.tsx";

export function Page() {
  return <PageHead title="Subscribers" />;
}

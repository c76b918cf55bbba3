import { DraftPage } from "../parts/draft/draft-page.tsx";

export const Page = () => <DraftPage kind="campaign" />;
